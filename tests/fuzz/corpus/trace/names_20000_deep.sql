UPDATE modules SET name = replace(hex(zeroblob(20000)), '00', '.x');
