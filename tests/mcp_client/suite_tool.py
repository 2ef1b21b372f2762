"""The suite's server in the configuration of both drivers."""
TOOL = '''
[[tools]]
kind = "mcp"
name = "suite"
url = "{url}"
effect = "read"
permission = "none"
attempts = 1
timeout_ms = 20000
'''
