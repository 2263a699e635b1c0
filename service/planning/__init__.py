"""Planning one graph on this machine: devices, database, searches, races against stored plans."""
