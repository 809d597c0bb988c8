"""Engine, tables, migrations and blobs: what every other room stands on."""
