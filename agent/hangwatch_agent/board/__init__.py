"""The mapped file in which a rank says what it is doing: its layout, writer, readers and directory.

Standard library only: ranks import it.
"""
