"""The dashboard: gathers the watchdogs of all nodes, judges across nodes, keeps incidents, and tells people.

`create_app(config)` in `hangwatch_dashboard.app` is the service; `hangwatch dashboard` starts it. It knows neither
torch nor the agent: all it knows of a job comes over the link, and is treated as hostile.
"""
