some avg10=0.07 avg60=0.17 avg300=0.19 total=28946817
full avg10=0.05 avg60=0.04 avg300=0.04 total=3177237
