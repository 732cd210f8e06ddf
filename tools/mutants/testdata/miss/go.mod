module miss

go 1.26.0
