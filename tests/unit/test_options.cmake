# The options alone: the service library would want an engine.
gm_take(test_options daemon service/options service/options_load service/rules service/users)
