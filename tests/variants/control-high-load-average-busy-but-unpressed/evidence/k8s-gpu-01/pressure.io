some avg10=0.20 avg60=0.28 avg300=0.16 total=11779215
full avg10=0.05 avg60=0.04 avg300=0.04 total=9543694
