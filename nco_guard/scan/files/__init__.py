"""Files, folders and streams of records, in several processes; what was found there, as SARIF too."""
