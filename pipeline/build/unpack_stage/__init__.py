"""Run the map stage, and divide large archives (compressed inputs) among its tasks.

A map task reads a range of a plain input, or a whole archive. If a build waited for one large
archive, only one core would be busy. Such an archive is therefore decompressed with several threads
of the build's own process, and cut into sections, which map tasks read. Start at `map_inputs.py`.
"""
