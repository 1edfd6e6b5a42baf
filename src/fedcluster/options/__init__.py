"""What users may choose: names of algorithms, rules and so on, and what does not go together."""
