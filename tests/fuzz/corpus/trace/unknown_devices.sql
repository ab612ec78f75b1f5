UPDATE storages SET device = 'quantum:-1', category = 107;
UPDATE peaks SET device = '' WHERE step = 0;
