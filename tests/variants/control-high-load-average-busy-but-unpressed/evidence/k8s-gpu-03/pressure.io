some avg10=0.28 avg60=0.28 avg300=0.28 total=15987407
full avg10=0.05 avg60=0.04 avg300=0.04 total=7195537
