UPDATE modules SET name = x'ff00fe', class = 5;
UPDATE run SET value = x'ff' WHERE key IN ('command', 'started_ns', 'world_size');
