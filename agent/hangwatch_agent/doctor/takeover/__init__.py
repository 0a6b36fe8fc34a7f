"""The folder that `hangwatch doctor` puts first on PYTHONPATH: Python imports its `sitecustomize` at every start."""
