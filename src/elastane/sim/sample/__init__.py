"""Data that the package carries: speed profiles, and 400 real jobs to try the simulator on.

Made by `data/derive_sample.py`; sources and licences stand in `data/README.md` of the repository.
philly_sample.csv: Microsoft Philly traces (CC BY 4.0, msr-fiddle/philly-traces) with the model names that the
authors of PCS assigned (MIT). profiles.csv.gz: AFS/PCS (MIT), ElasticFlow (Apache-2.0), Gavel (MIT),
Pollux (Apache-2.0).
"""
