"""Plans as folders that `fuseplan_client` runs: `folder.write_bundle`."""
