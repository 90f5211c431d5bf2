"""Stand-ins for packages that cannot be installed here; this folder is put on sys.path by the tests that need one."""
