"""Reports of a comparison: a table, plots, files, and one page to show to others."""

from elastane.sim.report.comparison import Comparison
from elastane.sim.report.files import check_folder, dump_json, save_report
from elastane.sim.report.html import render_html
from elastane.sim.report.table import CLAIRVOYANT_NOTE, LEGEND, build_table
from elastane.sim.report.wording import say_headline

__all__ = [
    "CLAIRVOYANT_NOTE",
    "LEGEND",
    "Comparison",
    "build_table",
    "check_folder",
    "dump_json",
    "render_html",
    "save_report",
    "say_headline",
]
