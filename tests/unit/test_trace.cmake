# The codec alone.
gm_take(test_trace daemon trace/trace)
