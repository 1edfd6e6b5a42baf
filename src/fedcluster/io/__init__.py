"""Reading rows: from arrays and data frames in memory, from files."""
