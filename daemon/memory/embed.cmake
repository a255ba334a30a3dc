# Writes the text file IN as a NUL-terminated C array NAME, declared in HEADER, into OUT:
#     cmake -DIN=.. -DOUT=.. -DNAME=.. -DHEADER=.. -P embed.cmake
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "(........................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUT} "#include \"${HEADER}\"\n\nconst char ${NAME}[] = {\n${bytes}0};\n")
