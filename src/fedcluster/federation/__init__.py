"""A federation over a network: its folders, its programs, and what the sites are asked.

Flower carries the messages. A coordinator runs Flower's SuperLink and its ServerApp, a site
Flower's SuperNode; sites only connect outwards.
"""
