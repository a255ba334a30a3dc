gpumux-profile 1
kernel 016ef31aa7bfc7a6 12 4 0 0 0 _Z11each_kernelIZN41_INTERNAL_6e127205_10_science_cu_f741951512make_waveletEmmEUlmE_EvmT_
touch 8 0 0+4/1*w0 0 1
kernel 0e856f796f0b2205 15 24 0 0 0 _Z9distancesPK6float2PfS_m
touch 0 0 0+8/1*w24 0 1
touch 8 0 0+4/1*w24 0 1
kernel 1dca049a8b850f07 14 198 0 0 0 _Z11each_kernelIZN41_INTERNAL_6e127205_10_science_cu_f741951511fill_floatsEPfmmEUlmE_EvmT_
touch 8 0 0+4/1*w0 0 1
kernel 2e20e40087d3a350 20 48 0 0 0 _Z4heatPKfS0_Pfi
touch 0 0 0+2/1*w24*gx 0 1
touch 8 0 0+2/1*w24*gx 0 1
touch 16 0 0+2/1*w24*gx 0 1
kernel 3c4a629b5669a95f 26 24 0 0 0 _Z17transform_columnsPKiPii
touch 0 0 0+2/1*w16*gx 0 1
touch 8 0 0+2/1*w16*gx 0 1
kernel 461108f48ad89da4 16 643 0 0 4096 _Z10sum_kernelIZN41_INTERNAL_6e127205_10_science_cu_f74195158checksumEvEUlmE_EvmT_Py
touch 8 0 0+4/1*w0 0 1
touch 16 0 4096 0 1
kernel 4e79cd18011b832f 11 24 0 0 0 _Z5leastPKfmPj
touch 0 0 0+4/1*w8 0 1
touch 16 0 4096 0 1
kernel 52424be569da9bdc 26 4 0 0 0 _Z11each_kernelIZN41_INTERNAL_6e127205_10_science_cu_f74195159make_flowEmmEUlmE_EvmT_
touch 8 0 0+4/1*w0 0 1
kernel 84bb19ac8728674a 32 504 0 0 0 _Z8multiplyPKfS0_Pf
touch 0 0 4194304 0 1
touch 8 0 4194304 0 1
touch 16 0 4194304 0 1
kernel a64cd04e13fa88ac 40 24 0 0 0 _Z4fluxPKiPKfS2_Pfm
touch 0 0 0+16/1*w32 0 1
touch 8 0 0+48/1*w32 0 1
touch 16 0 0+20/1*w32 0 1
touch 24 0 0+20/1*w32 0 1
kernel d00a1a7bdc0e9148 29 24 0 0 0 _Z14transform_rowsPKiPii
touch 0 0 0+2/1*w16*gx 0 1
touch 8 0 0+2/1*w16*gx 0 1
kernel e7c59fa0941af78a 16 25 0 0 0 _Z3addPKfS0_Pfm
touch 0 0 0+4/1*w24 0 1
touch 8 0 0+4/1*w24 0 1
touch 16 0 0+4/1*w24 0 1
end 12
