"""The tests: they mirror the package, plus race/, chaos/ and browser/."""
