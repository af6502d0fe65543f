module peers

go 1.27
