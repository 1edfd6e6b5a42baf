"""Questions to sites and their answers as messages: both ends, the policy, the records."""
