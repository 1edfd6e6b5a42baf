"""Pages in HTML about a run: the report, and the page that follows it while it goes on."""
