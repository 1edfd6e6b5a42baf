"""vantage6 as the transport; only this package imports vantage6, tools 4.15 or 5.0.

The module of the algorithm is `fedcluster_app.transports.vantage6.algorithm`.
"""
