"""The sections of a report, by subject; `compose` puts them in order."""
