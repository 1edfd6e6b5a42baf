"""What both ends rely on: identities, permits, logs, files with one owner, a site's state."""
