"""NVIDIA FLARE as the transport; only this package imports nvflare or knows its files.

A coordinator runs FLARE's server, a site FLARE's client. A job is three JSON files that name two
installed classes: `fedcluster_app.transports.flare._site.SiteExecutor` and
`fedcluster_app.transports.flare._server.RunController`. Neither starts in a kit that lacks a lock.
"""
