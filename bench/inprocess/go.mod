module penstock/bench/inprocess

go 1.26.0
