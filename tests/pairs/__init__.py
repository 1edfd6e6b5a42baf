"""What the covering array of all options is drawn from, built of, and held against."""
