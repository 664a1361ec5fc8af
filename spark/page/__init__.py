"""The files of a report: the HTML page with its plots; summary.json and CSV for programs.

Called on the driver with the finished ReportData; gives bytes and opens no file but its own
templates. Must not know Spark or where files go.
"""
