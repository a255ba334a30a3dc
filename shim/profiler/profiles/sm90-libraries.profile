gpumux-profile 1
kernel 0103f6d8534c4fd1 168 20 0 0 0 sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x256x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
none 280
none 288
none 712
none 736
none 1032
none 1048
none 1056
none 1264
none 1328
none 1392
none 1456
none 1840
none 1904
kernel 01158c8a585ef830 214 10 0 90 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 21889024+13/5*w36*w128 0 1
touch 296 0 0+1/1*w20*w168 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel 017df2038a812658 168 30 0 0 0 sm90_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32_warpgroupsize1x1x1_g1_execute_segment_k_on_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0+32768/1*w356 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1520
none 1584
none 1648
none 1712
kernel 02376500b51333f2 80 84 0 21 0 _ZN7cutlass7Kernel2I42cutlass_80_simt_sgemm_128x32_8x5_nt_align1EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8*w20 0 1
touch 288 0 0+1/1*w8*w20*w96 0 1
touch 296 0 0+1/1*w0*w20*w96 0 1
touch 304 0 0+1/1*w0*w20*w96 0 1
kernel 059e77624cc15e60 32 11 0 0 0 _ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIN3c104HalfENS0_9ArgMaxOpsIfEEjlLi4ELi4EEEEEvT1_
touch 1000 0 64512 0 1
touch 1008 0 512 0 1
kernel 071f7963e1a2d3e8 168 50 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_128x64_32x3_nn_align1EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel 07ca9cb4c63eda7f 168 36 0 0 0 sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32_warpgroupsize1x1x1_g1_execute_segment_k_on_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0+16/7*w264*w356*w1996 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1136
none 1200
none 1264
none 1328
kernel 0806380908266370 38 2118 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi2ENS0_21CUDAFunctorOnSelf_addIlEESt5arrayIPcLm2EEEEviT0_T1_
touch 24 0 512 0 1
touch 32 0 512 0 1
kernel 0a32a9d1bb86a8db 220 4 0 0 0 sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize64x128x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 0+4096/1*w164 0 1
touch 8 0 0+4/1*w160*w164 0 1
touch 16 0 0+4/1*w160*w156 0 1
touch 48 0 0+4/1*w160*w156 0 1
kernel 0aeeab1d021a141d 226 118 0 0 0 _ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x128_32x3_nt_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel 0bdd458a8577d94d 224 28 0 0 0 _ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align1EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel 0d5d4ab00a28c342 80 8 0 0 0 sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 0+4/1*w156*w164 0 1
touch 8 0 0+4/1*w164*w160 0 1
touch 16 0 0+4032/1*w156 0 1
touch 24 0 0+1/1*w156*w680 0 1
touch 48 0 0+4032/1*w156 0 1
touch 376 0 131072 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
kernel 0d60fcbebbb3cc6d 64 12 0 0 0 _Z15fft2d_r2c_32x32IfLb0ELj5ELb0EEvP6float2PKT_iiiiiiiiiN5cudnn15reduced_divisorEb4int2ii
touch 0 0 13369344 0 1
touch 8 0 307200 0 1
kernel 0d99ec6e79b0ed37 255 4 0 0 0 sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize256x64x8_stage3_warpsize2x2x1_g1_ffma_aligna4_alignc4_execute_kernel__5x_cudnn
touch 0 0 0+4/1*w56*w208 0 1
touch 8 0 4096 0 1
touch 16 0 0+4/1*w56*w228 0 1
touch 24 0 0+4/1*w56*w228 0 1
kernel 0e5782d3cf050eef 193 10 0 0 0 _ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock22ImplicitGemmMultistageINS_4gemm9GemmShapeILi64ELi128ELi16EEENS4_52Conv2dWgradOutputGradientTileAccessIteratorOptimizedINS_11MatrixShapeILi64ELi16EEENS_10tfloat32_tENS_9transform29PitchLinearWarpRakedThreadMapINS_16PitchLinearShapeILi64ELi16EEELi128ENSF_ILi8ELi4EEELi4EEENS_12AlignedArrayISC_Li4ELi16EEEEENSD_11threadblock25RegularTileAccessIteratorISB_SC_NS_6layout40ColumnMajorTensorOpMultiplicandCongruousILi32ELi32EEELi1ESI_Li16EEELNS_4arch14CacheOperation4KindE0ENS4_48Conv2dWgradActivationTileAccessIteratorOptimizedINSA_ILi16ELi128EEESC_NSE_INSF_ILi128ELi16EEELi128ESH_Li4EEESK_EENSN_ISW_SC_NSO_37RowMajorTensorOpMultiplicandCongruousILi32ELi32EEELi0ESY_Li16EEELSU_0ENS6_11threadblock9MmaPolicyINS6_4warp11MmaTensorOpINS7_ILi32ELi64ELi16EEESC_SQ_SC_S11_fNSO_8RowMajorENS15_17MmaTensorOpPolicyINSS_3MmaINS7_ILi16ELi8ELi8EEELi32ESC_S18_SC_NSO_11ColumnMajorEfS18_NSS_13OpMultiplyAddEEENSA_ILi1ELi1EEEEELi1ELb0EbEENSA_ILi0ELi0EEES1I_Li1EEELi6EbEENS_8epilogue11threadblock8EpilogueIS8_S1H_Li1ENS1M_22PredicatedTileIteratorINS1M_26OutputTileOptimalThreadMapINS1M_15OutputTileShapeILi128ELi8ELi2ELi1ELi1EEENS1Q_ILi1ELi4ELi1ELi1ELi4EEELi128ELi4ELi32EEEfLb0ENSO_9NoPermuteELb0EEENS1L_4warp24FragmentIteratorTensorOpIS17_S1B_fNS_5ArrayIfLi4ELb1EEES18_EENS1W_20TileIteratorTensorOpIS17_S1B_fS18_EENS1M_18SharedLoadIteratorINS1T_18CompactedThreadMapEfLi16EEENS1L_6thread17LinearCombinationIfLi4EffLNS26_9ScaleType4KindE0ELNS_15FloatRoundStyleE2EEENSA_ILi0ELi8EEELi2ELi1EEENS13_30GemmIdentityThreadblockSwizzleILi4EEELNS1_8OperatorE2ENS1_17Conv2dProblemSizeELNS1_9GroupModeE0EEEEEvNT_6ParamsE
touch 176 0 0+4/1*w0*w120 0 1
touch 264 0 0+1/1*w0*w120 0 1
none 336
touch 408 0 0+4/1*w64*w128 0 1
touch 472 0 0+4/1*w64*w128 0 1
kernel 1119dfd034422b0c 12 29 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi8ENS0_11FillFunctorIN3c104HalfEEESt5arrayIPcLm1EEEEviT0_T1_
touch 8 0 0+2/1*w0 0 1
kernel 11fe8174b941034a 40 2 0 0 0 _Z18sgemm_largek_lds64ILb1ELb0ELi6ELi3ELi4ELi5ELi2ELi66EEvPfPKfS2_iiiiiiS2_S2_ffiiPiS3_
touch 0 0 311296 0 1
touch 8 0 0+4/1*w24*w32 0 1
touch 16 0 1908736 0 1
touch 80 0 4096 0 1
touch 88 0 0 0 1
kernel 133cd871645b8780 63 6 0 0 0 _Z15fft2d_c2r_64x64IfLb0EEvPT_P6float2iiiiiiiiiiffi21cudnnActivationStructS1_S1_
touch 0 0 307200 0 1
touch 8 0 51904512 0 1
kernel 147467130f9dc04a 164 6 0 0 0 sm80_xmma_gemm_cf32cf32_f32f32_cf32_tn_n_tilesize64x64x8_stage3_warpsize2x2x1_ffma_aligna8_alignc8_execute_kernel__5x_cublas
touch 0 0 0+8/1*w224*w616 0 1
touch 8 0 0+8/1*w248*w616 0 1
touch 16 0 0+8/1*w272*w616 0 1
touch 48 0 0+8/1*w272*w616 0 1
kernel 163cadb769d373de 0 12 0 0 0 nvjet_sm90_hsh_64x16_64x16_2x1_v_bz_splitK_TNT
none 176
none 240
none 328
none 432
none 496
none 560
none 624
none 688
none 752
none 816
none 880
none 944
none 1008
none 1072
none 1136
none 1200
none 1264
none 1608
none 1704
none 1712
kernel 17ba9aa6ac028d2d 94 6 0 0 0 _ZN7cutlass7Kernel2I50cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align1EEvNT_6ParamsE
touch 280 0 4194304 0 1
touch 288 0 0+4/1*w40 0 1
touch 296 0 0+16/1*w40 0 1
touch 304 0 0+16/1*w40 0 1
kernel 1a861bbb1be0e179 32 4 0 0 0 _ZN2at6native58_GLOBAL__N__1076efdf_25_AdaptiveAveragePooling_cu_ef17039c33atomic_adaptive_average_gradinputIfEEvPT_PKS3_iiii
touch 0 0 0+196/1*gx 0 1
touch 8 0 0+196/1*gx 0 1
kernel 1a86ec1d1d592e65 228 72 0 0 0 _ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align4EEvNT_6ParamsE
touch 280 0 0+1/1*w8*w168 0 1
touch 288 0 0+1/1*w20*w312 0 1
touch 296 0 0+1/1*w4*w168 0 1
touch 304 0 0+1/1*w4*w168 0 1
kernel 1b8a30603b53ef8e 32 67 0 0 0 _ZN2at6native27unrolled_elementwise_kernelIZZZNS0_23direct_copy_kernel_cudaERNS_18TensorIteratorBaseEENKUlvE1_clEvENKUlvE2_clEvEUllE_St5arrayIPcLm2EELi4E23TrivialOffsetCalculatorILi1EjESB_NS0_6memory12LoadWithCastILi1EEENSC_13StoreWithCastILi1EEEEEviT_T0_T2_T3_T4_T5_
touch 8 0 0+8/1*w0 0 1
touch 16 0 0+1/1*w0*w32 0 1
kernel 1ce1c034de0ad2d1 168 8 0 0 0 sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x256x32_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas
none 280
none 288
none 712
none 736
touch 1032 0 0 0 1
touch 1048 0 0 0 1
touch 1056 0 0 0 1
touch 1080 0 4096 0 1
none 1264
none 1328
none 1392
none 1456
none 1840
none 1904
kernel 1d0c24986e33dbe1 104 34 0 0 0 sm80_xmma_wgrad_implicit_gemm_indexed_wo_smem_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize32x16x64_stage1_warpsize2x1x1_g1_tensor16x8x8_aligna4_alignc4_execute_kernel__5x_cudnn
touch 0 0 0+4/1*w56*w208 0 1
touch 8 0 0+4/1*w56*w228 0 1
touch 16 0 0+4/1*w72*w88*w96 0 1
touch 24 0 0+4/1*w72*w88*w96 0 1
touch 328 0 0+1/1*w308*w320 0 1
touch 344 0 0 0 1
touch 352 0 0+1/1*w340 0 1
kernel 1f584f7b04a9770e 48 116 0 0 0 _ZN5cudnn25bn_fw_tr_1C11_kernel_NCHWIffiLi128ELb1ELi1ELb1EEEv17cudnnTensorStructPKT_S1_PS2_PKT0_S8_S6_S6_PS6_S9_S9_S9_S6_S6_
touch 104 0 0+4/1*w16 0 1
touch 216 0 0+4/1*w16 0 1
touch 224 0 0+1/1*w32 0 1
touch 232 0 0+1/1*w32 0 1
touch 248 0 0+1/1*w32 0 1
touch 256 0 0+4/1*w36 0 1
touch 264 0 0+1/1*w32 0 1
touch 272 0 0+1/1*w32 0 1
kernel 20877f8743e021cc 220 6 0 0 0 _ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x128_16x4_tn_align4EEvNT_6ParamsE
touch 280 0 1705984 0 1
touch 288 0 0+4/1*w320*w20 0 1
touch 296 0 0+1/1*w168*w20 0 1
touch 304 0 0+1/1*w168*w20 0 1
kernel 20a83500acc42661 56 4 5 0 0 _Z16gemmSN_NN_kernelIfLi256ELi4ELi2ELi8ELi2ELi4ELb0E30cublasGemvTensorStridedBatchedIKfES2_S0_IfEEv22cublasGemmSmallNParamsIT7_T8_T9_T_E
touch 16 0 0+4/1*w92*w100 0 1
touch 32 0 8192 0 1
touch 48 0 32768 0 1
touch 64 0 32768 0 1
kernel 229ce5044d9dd933 32 756 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_
touch 8 0 0+4/1*w0 0 1
touch 16 0 0+4/1*w0 0 1
touch 24 0 0+4/1*w0 0 1
kernel 22a8116bc9592a6b 148 14 0 0 0 sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize32x64x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 0+4/1*w156*w164 0 1
touch 8 0 0+4/1*w160*w164*w616 0 1
touch 16 0 0+4/1*w156*w160*w616 0 1
touch 48 0 0+4/1*w156*w160*w616 0 1
kernel 22f1dea924e3ac9c 0 12 0 0 0 nvjet_sm90_hsh_128x160_64x5_2x1_v_ssched_bz_NNT
none 176
none 240
none 328
none 432
none 496
none 560
none 624
none 816
none 880
none 944
none 1008
none 1072
none 1136
none 1200
none 1264
none 1704
none 1712
kernel 234307c913bb2be8 247 50 0 66 0 _ZN17cutlass__5x_cudnn6KernelI66cutlass_tensorop_s1688wgrad_optimized_tf32_256x64_16x4_nhwc_align4EEvNT_6ParamsE
touch 176 0 0+4/1*w0*w120 0 1
other 264
touch 336 0 0+4/1*w24*w88 0 1
touch 408 0 0+4/1*w24*w88 0 1
touch 472 0 0+1/1*w0 0 1
kernel 256ae0745e15667a 167 144 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_128x64_32x6_nt_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel 25d55fbbcbe6992e 168 98 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_128x64_32x3_tn_align1EEvNT_6ParamsE
touch 280 0 0+4/1*w20*w312 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel 2794a9bff96268a4 27 32 0 0 0 _ZN2at6native59_GLOBAL__N__133be68c_20_group_norm_kernel_cu_751192d7_2652324RowwiseMomentsCUDAKernelIN3c104HalfEEEvlT_PKS5_PS5_S8_
touch 16 0 0+1/1*w0*bx 0 1
touch 24 0 4096 0 1
touch 32 0 0 0 1
kernel 2818f34fa3a96748 40 73 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi2ENS0_13BinaryFunctorIlllNS0_15binary_internal10MulFunctorIlEEEESt5arrayIPcLm3EEEEviT0_T1_
touch 8 0 0+8/1*w0 0 1
touch 16 0 0+8/1*w0 0 1
touch 24 0 0+8/1*w0 0 1
kernel 289ca03d53f96c2e 64 436 0 0 0 _ZN5cudnn17winograd_nonfused20winogradWgradData4x4IffEEvNS0_18WinogradDataParamsIT_T0_EE
touch 56 0 0+4/1*w0*w20 0 1
touch 64 0 0+144/1*w36 0 1
kernel 28fd1f1bde9b6ce6 218 4 0 0 0 sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 4194304 0 1
touch 8 0 4194304 0 1
touch 16 0 4194304 0 1
touch 48 0 4194304 0 1
kernel 2955cdbd52753c50 216 14 0 0 0 _ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x128_16x6_nn_align4EEvNT_6ParamsE
touch 280 0 262144 0 1
touch 288 0 0+1/1*w0*w168 0 1
touch 296 0 0+1/1*w0*w40 0 1
touch 304 0 0+1/1*w0*w40 0 1
kernel 2b3283c0f4f25b4e 54 26 0 0 0 _ZN2at6native13reduce_kernelILi128ELi4ENS0_8ReduceOpIfNS0_14func_wrapper_tIfZNS0_11sum_functorIfffEclERNS_14TensorIteratorEEUlffE_EEjfLi4ELi4EEEEEvT1_
touch 984 0 0+1/1*w12*w376 0 1
touch 992 0 0+1/1*w376 0 1
kernel 2b5b4da7db0cf1d3 33 2 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi8EZZZNS0_49_GLOBAL__N__d2ba64fb_16_TensorCompare_cu_71e06f4e19launch_clamp_scalarERNS_18TensorIteratorBaseEN3c106ScalarES6_NS0_6detail11ClampLimitsEENKUlvE_clEvENKUlvE6_clEvEUlNS5_4HalfEE_St5arrayIPcLm2EEEEviT0_T1_
touch 32 0 0+2/1*w0 0 1
touch 40 0 0+2/1*w0 0 1
kernel 2c46c9b6b39946c4 168 242 0 0 0 sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32_warpgroupsize1x1x1_g1_execute_segment_k_on_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0+65536/1*w356 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1136
none 1200
none 1264
none 1328
kernel 2c613be09c013a28 32 30 0 0 0 _ZN5cudnn21bn_bw_1C11_kernel_newIff6float2Li512ELb1ELi1EEEvT0_S2_S2_S2_17cudnnTensorStructPKT_S3_S6_S3_PS4_PKS2_PS2_SA_S9_S9_S2_
touch 120 0 0+4/1*w32 0 1
touch 232 0 0+4/1*w32 0 1
touch 344 0 0+4/1*w32 0 1
touch 352 0 0+1/1*w48 0 1
touch 360 0 0 0 1
touch 368 0 0 0 1
touch 376 0 0+1/1*w48 0 1
touch 384 0 0+1/1*w48 0 1
kernel 2c91a2e971d8da7c 168 16 0 0 0 sm90_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize256x128x32_warpgroupsize2x1x1_g1_execute_segment_k_off_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1520
none 1584
none 1648
none 1712
touch 2784 0 4096 0 1
kernel 2ca07e757360e265 65 8 0 0 0 _Z17gemv2T_kernel_valIiiffffLi128ELi16ELi4ELi4ELb0ELb0E18cublasGemvParamsExIi30cublasGemvTensorStridedBatchedIKfES3_S1_IfEfEEvT11_T4_S7_
touch 0 0 0+4/1*w64*w64 0 1
touch 16 0 16384 0 1
touch 32 0 16384 0 1
touch 48 0 16384 0 1
kernel 2cbce4c02641f862 120 122 0 0 0 sm80_xmma_dgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x32x64_stage5_warpsize2x2x1_g1_tensor16x8x8_execute_kernel__5x_cudnn
touch 0 0 0+4/1*w56*w228 0 1
touch 8 0 0+4/1*w88*w624 0 1
touch 16 0 0+4/1*w56*w208 0 1
touch 24 0 0+4/1*w56*w208 0 1
touch 328 0 0 0 1
touch 344 0 0 0 1
touch 352 0 0 0 1
kernel 307a9a59ca1710dd 96 48 0 0 0 sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize32x64x64_stage4_warpsize2x2x1_tensor16x8x8_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 0+2/1*w688 0 1
touch 8 0 0+4/1*w248*w616 0 1
touch 16 0 428032 0 1
touch 48 0 428032 0 1
kernel 30cfd1a26e568b62 64 436 0 0 0 _ZN5cudnn17winograd_nonfused21winogradWgradDelta4x4IffEEvNS0_19WinogradDeltaParamsIT_T0_EE
touch 48 0 0+4/1*w0*w20 0 1
touch 56 0 0+144/1*w36 0 1
kernel 3189609bfd10d686 168 2 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_128x64_32x3_nt_align1EEvNT_6ParamsE
touch 280 0 20480 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+1/1*w20*w168 0 1
touch 304 0 0+1/1*w20*w168 0 1
kernel 337e2919a943484c 26 4 0 0 0 _ZN8cublasLt8epilogue4impl12globalKernelILi8ELi32EfffLb1ELb1ELi1EEEviilPT1_18cublasLtEpilogue_tiPT2_lPvlllPT3_lPi
touch 16 0 311296 0 1
touch 32 0 16384 0 1
kernel 35e171b29d2008ef 52 209 0 0 0 _ZN2at6native55_GLOBAL__N__11f7a751_22_DistributionUniform_cu_67fa25cf43distribution_elementwise_grid_stride_kernelIfLi4EZNS0_9templates4cuda21uniform_and_transformIffPNS_17CUDAGeneratorImplEZZZNS4_14uniform_kernelIS7_EEvRNS_18TensorIteratorBaseEddT_ENKUlvE_clEvENKUlvE0_clEvEUlfE_EEvSA_T1_T2_EUlP24curandStatePhilox4_32_10E0_ZNS1_27distribution_nullary_kernelIff6float4S7_SJ_SE_EEvSA_SG_RKT3_T4_EUlifE_EEvlNS_15PhiloxCudaStateESF_SG_
touch 48 0 0+4/1*w0 0 1
kernel 38180a319b0a30ef 28 2158 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_49_GLOBAL__N__d2ba64fb_16_TensorCompare_cu_71e06f4e19launch_clamp_scalarERNS_18TensorIteratorBaseEN3c106ScalarES6_NS0_6detail11ClampLimitsEENKUlvE_clEvENKUlvE5_clEvEUlfE_St5arrayIPcLm2EEEEviT0_T1_
touch 32 0 0+4/1*w0 0 1
touch 40 0 0+4/1*w0 0 1
kernel 38e89e2643299ff4 80 16 0 0 0 _ZN7cutlass7Kernel2I42cutlass_80_simt_sgemm_128x32_8x5_nn_align1EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+1/1*w96*w8 0 1
touch 296 0 0 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel 392cd3f6143f4882 178 14 0 0 0 sm80_xmma_dgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x64_stage4_warpsize2x2x1_g1_tensor16x8x8_execute_kernel__5x_cudnn
touch 0 0 0+16/1*w208 0 1
touch 8 0 589824 0 1
touch 16 0 0+16/1*w208 0 1
touch 24 0 0+16/1*w208 0 1
none 328
none 344
none 352
kernel 3b2f0c5384cd0dda 164 12 0 0 0 sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32_warpgroupsize1x1x1_g1_execute_split_k_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 4259840 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1136
none 1200
none 1264
none 1328
kernel 3ca6918dc1f7ce73 168 8 0 0 0 sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x256x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
none 280
none 288
none 712
none 736
touch 1032 0 0 0 1
touch 1048 0 0 0 1
touch 1056 0 0 0 1
touch 1080 0 4096 0 1
none 1264
none 1328
none 1392
none 1456
none 1840
none 1904
kernel 42b2d39f1aa062af 168 12 0 0 0 sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1_g1_execute_segment_k_on_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 7864320 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1584
none 1648
none 1712
none 1776
touch 2864 0 0 0 1
kernel 43420536052a3b5d 214 84 0 0 0 _ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x256_32x3_nt_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel 4579ce9e0bb81082 255 2 0 0 0 sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x128x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 311296 0 1
touch 8 0 0+2/1*w368*bx 0 1
touch 16 0 1908736 0 1
touch 48 0 1908736 0 1
touch 376 0 0+1/1*w368 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
kernel 4661378c06444900 223 64 0 0 0 _ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x256_32x3_nt_align1EEvNT_6ParamsE
touch 280 0 0+4/1*w8*w0 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel 468ed235a7ad5942 116 2 0 0 0 sm80_xmma_fprop_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x32x32_stage4_warpsize4x1x1_g1_tensor16x8x16_execute_kernel__5x_cudnn
touch 0 0 0+1/1*w64*w208 0 1
touch 8 0 45056 0 1
touch 16 0 0+16/1*w612 0 1
touch 24 0 0+16/1*w612 0 1
touch 328 0 0 0 1
touch 344 0 0 0 1
touch 352 0 0 0 1
kernel 48b2582040b0c800 40 86 0 0 0 _ZN17cutlass__5x_cudnn6KernelINS_9reduction6kernel12ReduceSplitKINS_11MatrixShapeILi4ELi128EEENS_8epilogue6thread17LinearCombinationIfLi4EffLNS7_9ScaleType4KindE0ELNS_15FloatRoundStyleE2EEENS1_6thread9ReduceAddIffLi4EEELi4EEEEEvNT_6ParamsE
touch 24 0 0+1/1*w8*w16 0 1
touch 40 0 0+1/1*w16 0 1
touch 56 0 0+1/1*w16 0 1
kernel 4a52807720cd36f9 32 24 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi8EZNS0_25bfloat16_copy_kernel_cudaERNS_18TensorIteratorBaseEEUlfE_St5arrayIPcLm2EEEEviT0_T1_
touch 8 0 0+2/1*w0 0 1
touch 16 0 0+4/1*w0 0 1
kernel 4b748452e2effe62 168 32 0 0 0 sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn
none 48
none 56
none 64
none 72
none 376
none 392
none 400
none 1136
none 1200
none 1264
none 1328
kernel 4b943396987908b7 96 2 0 0 0 sm80_xmma_fprop_implicit_gemm_indexed_wo_smem_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x32x16_stage1_warpsize4x1x1_g1_tensor16x8x16_aligna8_alignc8_execute_kernel__5x_cudnn
touch 0 0 0+8/1*w612 0 1
touch 8 0 20480 0 1
touch 16 0 0+1/1*w64*w228 0 1
touch 24 0 0+1/1*w64*w228 0 1
touch 328 0 0 0 1
touch 344 0 0 0 1
touch 352 0 0 0 1
kernel 4ccf5250dddb180e 168 8 0 0 0 sm90_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize256x64x32_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1520
none 1584
none 1648
none 1712
touch 2784 0 4096 0 1
kernel 51cd1f82024cf885 255 8 0 0 0 sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 0+4/1*w156*w164 0 1
touch 8 0 0+4/1*w160*w164 0 1
touch 16 0 0+4/1*w156*w160 0 1
touch 48 0 0+4/1*w156*w160 0 1
touch 376 0 0+1/1*w368 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
kernel 51fd62381db48efe 168 102 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_128x64_32x6_tn_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w20*w312 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel 52caa8572dfe43ee 168 30 0 0 0 sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32_warpgroupsize1x1x1_g1_execute_segment_k_on_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0+32768/1*w384 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1584
none 1648
none 1712
none 1776
touch 2864 0 0 0 1
kernel 5360b0ec63202ffd 96 2 0 0 0 _Z16gemmSN_TN_kernelIfLi128ELi16ELi2ELi4ELi8ELi9ELb0E30cublasGemvTensorStridedBatchedIKfES2_S0_IfEEv22cublasGemmSmallNParamsIT7_T8_T9_T_E
touch 16 0 0+4/1*w92*w100 0 1
touch 32 0 61440 0 1
touch 48 0 32768 0 1
touch 64 0 32768 0 1
touch 136 0 4096 0 1
kernel 53e8288b459c9162 216 6 0 0 0 _ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4EEvNT_6ParamsE
touch 280 0 0+16/1*w64 0 1
touch 288 0 0+4/1*w320*w20 0 1
touch 296 0 0+1/1*w20*w168 0 1
touch 304 0 0+1/1*w20*w168 0 1
kernel 54b06031a4158238 32 4 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13AUnaryFunctorIN3c104HalfES4_bNS0_51_GLOBAL__N__28ce311f_18_CompareEQKernel_cu_d8008c9616CompareEqFunctorIS4_EEEESt5arrayIPcLm2EEEEviT0_T1_
touch 16 0 0+1/1*w0 0 1
touch 24 0 0+2/1*w0 0 1
kernel 54c7376f4377c29b 40 73 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi2ENS0_15CUDAFunctor_addIlEESt5arrayIPcLm3EEEEviT0_T1_
touch 16 0 512 0 1
touch 24 0 512 0 1
touch 32 0 512 0 1
kernel 554a85ee4bce5bfe 168 72 0 0 0 sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
none 280
none 288
none 712
none 736
none 1264
none 1328
none 1392
none 1456
none 1840
none 1904
kernel 555e07845ec15ee2 214 50 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_256x64_16x4_nt_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel 55fdf67e6cc209f3 128 8 0 0 0 _ZN8internal5gemvx6kernelIiiffffLb0ELb1ELb0ELb0ELi9ELb0E18cublasGemvParamsExIi30cublasGemvTensorStridedBatchedIKfES5_S3_IfEfEEENSt9enable_ifIXntT5_EvE4typeET11_
touch 0 0 0+4/1*w64*w64 0 1
touch 16 0 16384 0 1
touch 32 0 16384 0 1
touch 48 0 16384 0 1
kernel 56b245d74b51d50d 32 70 0 0 0 _ZN5cudnn19engines_precompiled16nchwToNhwcKernelI6__halfS2_fLb0ELb1EL21cudnnKernelDataType_t0EEEvNS0_18nchw2nhwc_params_tIT1_EEPKT_PT0_
touch 72 0 0+2/1*w0*w12 0 1
touch 80 0 0+2/1*w0*w12 0 1
kernel 591a2305e60015b0 121 14 0 178 0 sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 0+4/1*w156*w164 0 1
touch 8 0 0+4/1*w160*w164 0 1
touch 16 0 0+4/1*w156*w160 0 1
touch 48 0 0+4/1*w156*w160 0 1
touch 376 0 0+1/1*w356*w368 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
kernel 59a6f339f69e362f 168 32 0 0 0 sm90_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32_warpgroupsize1x1x1_g1_execute_segment_k_on_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0+65536/1*w356 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1520
none 1584
none 1648
none 1712
touch 2784 0 0 0 1
kernel 5b64d58527f10390 78 48 0 0 0 sm80_xmma_gemm_cf32cf32_f32f32_cf32_nt_n_tilesize32x32x8_stage3_warpsize2x2x1_ffma_aligna8_alignc8_execute_kernel__5x_cublas
touch 0 0 0+8/1*w224*w616 0 1
touch 8 0 0+8/1*w248*w616 0 1
touch 16 0 0+8/1*w272*w616 0 1
touch 48 0 0+8/1*w272*w616 0 1
kernel 5c7708096530c6e9 168 220 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_64x128_32x3_tn_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w20*w312 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel 5c8f9238ad7cf790 32 4 0 0 0 _ZN2at6native49_GLOBAL__N__834c9086_16_AveragePool2d_cu_fb80407625avg_pool2d_out_cuda_frameIN3c104HalfEfEEviPKT_lllliiiiiiiPS5_ibb
touch 8 0 0+8/1*w0 0 1
touch 80 0 0+2/1*w0 0 1
kernel 5ce91905b3e3de8c 32 1852 0 0 0 _ZN5cudnn19engines_precompiled16nchwToNhwcKernelIfffLb0ELb1EL21cudnnKernelDataType_t2EEEvNS0_18nchw2nhwc_params_tIT1_EEPKT_PT0_
touch 72 0 0+4/1*w12*w0 0 1
touch 80 0 0+4/1*w12*w0 0 1
kernel 5f74f6ea19a88ef3 224 104 0 0 0 _ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel 60f8443e468d2a20 228 2 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_64x256_32x4_nn_align4EEvNT_6ParamsE
touch 280 0 2097152 0 1
touch 288 0 0+4/1*w20*w168 0 1
touch 296 0 0+2/1*w20*w168 0 1
touch 304 0 0+2/1*w20*w168 0 1
kernel 6156e7a7da0f0542 168 20 0 0 0 sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x32_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn
none 48
none 56
none 64
none 72
none 376
none 392
none 400
none 1136
none 1200
none 1264
none 1328
kernel 622e1df87c88c9aa 168 10 2 0 0 sm90_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize256x128x32_warpgroupsize2x1x1_g1_execute_segment_k_on_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0+1/32768*d104*w356 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1520
none 1584
none 1648
none 1712
touch 2784 0 0 0 1
kernel 62ab45fd94b9eab0 168 128 0 0 0 sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1584
none 1648
none 1712
none 1776
touch 2864 0 0+1/1*w104 0 1
kernel 63c0a8cf48fae245 168 38 0 0 0 sm90_xmma_dgrad_implicit_gemm_indexed_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize256x64x32_warpgroupsize1x1x1_g1_strided_execute_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
touch 1248 0 0+1/1*w104 0 1
none 1264
none 1328
none 1392
none 1456
none 1520
none 1584
none 1648
none 1712
none 1776
none 1840
none 1904
none 1968
none 2032
none 2096
none 2160
none 2224
none 2288
none 2352
none 2416
none 2480
none 2544
none 2608
none 2672
none 2736
none 2800
none 2864
none 2928
none 2992
none 3056
none 3120
none 3184
kernel 642502f117342e8d 121 2 0 0 0 sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize64x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 24576 0 1
touch 8 0 0+4/1*w248*w616 0 1
touch 16 0 0+4/1*w272*w616 0 1
touch 48 0 0+4/1*w272*w616 0 1
kernel 6671e0523a9d8133 224 2 0 0 0 _ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x256_32x3_nn_align4EEvNT_6ParamsE
touch 280 0 2097152 0 1
touch 288 0 0+1/1*w8*w104 0 1
touch 296 0 0+1/1*w0*w104 0 1
touch 304 0 0+1/1*w0*w104 0 1
kernel 69b228510d0f3f26 94 24 0 0 0 sm80_xmma_fprop_implicit_gemm_indexed_wo_smem_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x16x64_stage1_warpsize4x1x1_g1_tensor16x8x8_alignc4_execute_kernel__5x_cudnn
touch 0 0 0+4/1*w56*w208 0 1
touch 8 0 147456 0 1
touch 16 0 0+1/1*w56*w208 0 1
touch 24 0 0+1/1*w56*w208 0 1
none 328
none 344
none 352
kernel 6a87955869ce8f90 88 128 0 3 0 _ZN7cutlass7Kernel2I50cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w20*w36 0 1
touch 288 0 0+1/1*w20*w36*w120 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel 6ae3ae6a8adf958f 217 18 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_256x64_16x4_nt_align1EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+4/1*w320*w20 0 1
touch 296 0 0+4/1*w40*w20 0 1
touch 304 0 0+4/1*w40*w20 0 1
kernel 6d70a620350a1b28 158 12 0 0 0 sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32_warpgroupsize1x1x1_g1_execute_split_k_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0+1/1*w356*w368 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1136
none 1200
none 1264
none 1328
kernel 6e0aa2cd89dd473d 0 11 0 0 0 nvjet_sm90_hsh_256x8_64x6_2x1_v_bz_TNT
none 176
none 240
none 328
none 432
none 496
none 560
none 624
none 816
none 880
none 944
none 1008
none 1072
none 1136
none 1200
none 1264
none 1704
none 1712
kernel 6ef50e871a4e438e 18 76 0 264 0 _ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastINS0_15CUDAFunctor_addIN3c104HalfEEEEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_
none 56
touch 64 0 0+2/1*w0 0 1
none 72
none 184
none 264
none 520
touch 616 0 0+2/1*w0 0 1
touch 624 0 0+2/1*w0 0 1
other 632
kernel 7003eb1ffbe325ff 18 6 0 896 0 _ZN2at6native40_GLOBAL__N__0f1a8107_8_Shape_cu_49f7391c30CatArrayBatchedCopy_vectorizedINS1_10OpaqueTypeILj2EEEjLi2ELi128ELi1ELi16ELi8EEEvPcNS1_25CatArrInputTensorMetadataIT_T0_XT2_EXT3_EEENS1_16TensorSizeStrideIS8_Lj4EEEiS8_
touch 0 0 41943040+10485760/1*w160*w168 0 1
touch 8 0 20971520+5242880/1*w160*w168 0 1
touch 16 0 20971520+5242880/1*w160*w168 0 1
touch 2600 0 20971520 0 1
kernel 7015ddaacb287806 246 36 0 0 0 _ZN17cutlass__5x_cudnn6KernelI66cutlass_tensorop_s1688fprop_optimized_tf32_256x64_16x4_nhwc_align4EEvNT_6ParamsE
touch 184 0 0+1/1*w84*w128 0 1
touch 240 0 0+4/1*w24*w92 0 1
touch 312 0 0+4/1*w24*w84 0 1
touch 384 0 0+4/1*w24*w84 0 1
touch 448 0 0 0 1
kernel 757f03ff8642160e 44 64 0 0 0 _ZN2at6native54_GLOBAL__N__d8ceb000_21_DistributionNormal_cu_0c5b6e8543distribution_elementwise_grid_stride_kernelIfLi4EZNS0_9templates4cuda20normal_and_transformIN3c104HalfEfPNS_17CUDAGeneratorImplEZZZNS4_13normal_kernelIS9_EEvRKNS_10TensorBaseEddT_ENKUlvE_clEvENKUlvE1_clEvEUlfE_EEvRNS_18TensorIteratorBaseET1_T2_EUlP24curandStatePhilox4_32_10E0_ZNS1_27distribution_nullary_kernelIS7_f6float4S9_SO_SH_EEvSJ_SL_RKT3_T4_EUlifE_EEvlNS_15PhiloxCudaStateESK_SL_
touch 48 0 0+2/1*w0 0 1
kernel 76a371834cd58f8a 168 114 0 0 0 sm90_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn
none 48
none 56
none 64
none 72
none 376
none 392
none 400
none 1520
none 1584
none 1648
none 1712
kernel 76d1b05dfdd229dd 0 32 0 0 0 nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_TNT
none 176
none 240
none 328
none 432
none 496
none 560
none 624
none 816
none 880
none 944
none 1008
none 1072
none 1136
none 1200
none 1264
none 1704
none 1712
kernel 77c9abfcc38176d2 18 88 0 0 0 _ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastIZZZNS0_15neg_kernel_cudaERNS_18TensorIteratorBaseEENKUlvE0_clEvENKUlvE6_clEvEUlN3c104HalfEE_EEvS4_RKT_EUliE_EEviT1_
touch 512 0 0+2/1*w0 0 1
touch 520 0 7168 24576 0+1/1928*w0
kernel 7b59f1642d5e0202 32 3118 0 0 0 _ZN5cudnn19engines_precompiled16nchwToNhwcKernelIfffLb0ELb1EL21cudnnKernelDataType_t0EEEvNS0_18nchw2nhwc_params_tIT1_EEPKT_PT0_
touch 72 0 0+4/1*w0*w12 0 1
touch 80 0 0+4/1*w0*w12 0 1
kernel 7b67923e72c5663e 34 170 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi8ENS0_15CUDAFunctor_addIN3c104HalfEEESt5arrayIPcLm3EEEEviT0_T1_
touch 8 0 0+2/1*w0 0 1
touch 16 0 0+2/1*w0 0 1
touch 24 0 0+2/1*w0 0 1
kernel 7c857e0282aac1e8 32 4 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi8ENS0_10AbsFunctorIN3c104HalfEEESt5arrayIPcLm2EEEEviT0_T1_
touch 8 0 0+2/1*w0 0 1
touch 16 0 0+2/1*w0 0 1
kernel 7cc209fdc3cb49c2 32 2044 0 0 0 _ZN5cudnn19engines_precompiled16nhwcToNchwKernelIfffLb1ELb0EL21cudnnKernelDataType_t0EEEvNS0_18nhwc2nchw_params_tIT1_EEPKT_PT0_
touch 72 0 0+4/1*w0*w16 0 1
touch 80 0 0+4/1*w0*w20 0 1
kernel 7d6801aa95205280 124 10 0 0 0 sm80_xmma_fprop_implicit_gemm_indexed_wo_smem_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x32x16_stage1_warpsize4x1x1_g1_tensor16x8x8_aligna4_alignc8_execute_kernel__5x_cudnn
touch 0 0 0+4/1*w56*w208 0 1
touch 8 0 36864 0 1
touch 16 0 0+4/1*w56*w228 0 1
touch 24 0 0+4/1*w56*w228 0 1
touch 328 0 0 0 1
touch 344 0 0 0 1
touch 352 0 0 0 1
kernel 7f6683f626e3cb7d 230 6 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_64x256_32x4_nn_align1EEvNT_6ParamsE
touch 280 0 4194304 0 1
touch 288 0 1204224 0 1
touch 296 0 0+1/1*w80*w160 0 1
touch 304 0 0+1/1*w80*w160 0 1
kernel 7fc5245f73f6f9a2 168 4 0 0 0 _ZN7cutlass7Kernel2I50cutlass_80_tensorop_s1688gemm_64x64_32x4_nn_align4EEvNT_6ParamsE
touch 280 0 65536 0 1
touch 288 0 0+16/1*w168 0 1
touch 296 0 0+4/1*w168 0 1
touch 304 0 0+4/1*w168 0 1
kernel 809bcd5b157bb1ba 0 12 0 0 0 nvjet_sm90_hsh_128x16_64x11_4x1_v_bz_splitK_TNT
none 176
none 240
none 328
none 432
none 496
none 560
none 624
none 688
none 752
none 816
none 880
none 944
none 1008
none 1072
none 1136
none 1200
none 1264
none 1608
none 1704
none 1712
kernel 81c3ba843d19e990 92 166 0 0 0 _ZN7cutlass7Kernel2I50cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+1/1*w8*w20*w120 0 1
touch 296 0 0+1/1*w0*w20*w120 0 1
touch 304 0 0+1/1*w0*w20*w120 0 1
kernel 831c693267173635 242 20 0 0 0 _ZN17cutlass__5x_cudnn6KernelI79cutlass_tensorop_s1688dgrad_optimized_tf32_256x64_16x4_nhwc_unity_stride_align4EEvNT_6ParamsE
touch 184 0 0+4/1*w0*w120 0 1
touch 240 0 0+256/1*w92 0 1
touch 312 0 0+4/1*w84*w12 0 1
touch 384 0 0+4/1*w84*w12 0 1
touch 448 0 0 0 1
kernel 840054eb465e04e4 32 38 0 0 0 _ZN8cublasLt19splitKreduce_kernelILi32ELi16EiffffLb0EfffLb1ELb0ELb0ELb0EEEvNS_18cublasSplitKParamsIT4_EEPKT2_PKT8_PT7_PT3_PKS2_SF_PKT9_S6_PSG_PvlPS2_PiSL_SL_SF_SF_SF_SF_SF_
touch 64 0 0+4/1*w36*w40 0 1
touch 72 0 0+4/1*w36 0 1
touch 80 0 0+4/1*w36 0 1
touch 88 0 0+4/1*w36 0 1
kernel 849064e1e1658f83 64 4 0 0 0 _Z16gemmSN_NN_kernelIfLi256ELi4ELi2ELi8ELi4ELi4ELb0E30cublasGemvTensorStridedBatchedIKfES2_S0_IfEEv22cublasGemmSmallNParamsIT7_T8_T9_T_E
touch 16 0 0+4/1*w92*w100 0 1
touch 32 0 262144 0 1
touch 48 0 704512 0 1
touch 64 0 704512 0 1
kernel 851a6a47a0935669 91 48 0 0 0 _ZN7cutlass7Kernel2I50cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align1EEvNT_6ParamsE
touch 280 0 0+8/1*w72 0 1
touch 288 0 0+16/1*w168 0 1
touch 296 0 0+1/1*w0*w152 0 1
touch 304 0 0+1/1*w0*w152 0 1
kernel 85c404aaf680b0a9 234 6 0 0 0 sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8_alignc4_execute_kernel__5x_cudnn
touch 0 0 0+4/1*w56*w208 0 1
touch 8 0 0+4/1*w88*w624 0 1
touch 16 0 0+4/1*w56*w228 0 1
touch 24 0 0+4/1*w56*w228 0 1
touch 328 0 0 0 1
touch 344 0 0 0 1
touch 352 0 0 0 1
kernel 85ec0ebaa96375dd 38 31 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi2ENS0_13AUnaryFunctorIlllNS0_15binary_internal10MulFunctorIlEEEESt5arrayIPcLm2EEEEviT0_T1_
touch 24 0 512 0 1
touch 32 0 512 0 1
kernel 86099f462c5d4f24 32 108 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi8EZNS0_24float16_copy_kernel_cudaERNS_18TensorIteratorBaseEEUlfE_St5arrayIPcLm2EEEEviT0_T1_
touch 8 0 0+2/1*w0 0 1
touch 16 0 0+4/1*w0 0 1
kernel 8623f8dd717c9f3e 32 64 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi8EZZZNS0_62_GLOBAL__N__7d4ed096_23_ActivationSiluKernel_cu_751192d7_1559511silu_kernelERNS_18TensorIteratorBaseEENKUlvE_clEvENKUlvE3_clEvEUlN3c104HalfEE_St5arrayIPcLm2EEEEviT0_T1_
touch 8 0 0+2/1*w0 0 1
touch 16 0 0+2/1*w0 0 1
kernel 87e76ecaa9d561b5 32 50 0 0 0 _ZN5cudnn21bn_bw_1C11_kernel_newIff6float2Li32ELb1ELi1EEEvT0_S2_S2_S2_17cudnnTensorStructPKT_S3_S6_S3_PS4_PKS2_PS2_SA_S9_S9_S2_
touch 120 0 0+4/1*w32 0 1
touch 232 0 0+4/1*w32 0 1
touch 344 0 0+4/1*w32 0 1
touch 352 0 0+4/1*w52 0 1
touch 360 0 0+1/1*w52 0 1
touch 368 0 0+4/1*w52 0 1
touch 376 0 0+1/1*w52 0 1
touch 384 0 0+1/1*w52 0 1
kernel 88ba5794df9105ac 68 18 0 0 0 _ZN8internal24region_transform_ABC_valIiLi32ELi32ELb0ENS_18TransformParamsABCI6float2NS_23TiledMatrixStridedBatchINS_7RawDataIKS2_iEENS_8Tile_ColIiLi32EEEEES9_NS3_INS4_IS2_iEES8_EEEEEEvT3_NSD_4MathESE_
touch 32 0 0+8/1*w0*w4 0 1
touch 80 0 0+8/1*w0*w4 0 1
kernel 88de70f848eb1a29 220 14 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_256x64_32x3_nn_align4EEvNT_6ParamsE
touch 280 0 262144 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+1/1*w20*w320 0 1
touch 304 0 0+1/1*w20*w320 0 1
kernel 892160fac59a2c89 168 18 0 0 0 sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x256x32_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1584
none 1648
none 1712
none 1776
touch 2864 0 0+1/1*w120 0 1
kernel 893b26650896edd9 32 988 0 0 0 _ZN5cudnn3cnn24reduce_wgrad_nchw_helperIffEEvPvPKvT_ii
touch 0 0 0+4/1*w24 0 1
touch 8 0 0+4/1*w20*w24 0 1
kernel 8bcff1fca8280e4b 71 18 0 0 0 _ZN43_GLOBAL__N__b6de9c8c_10_SoftMax_cu_9f978f6320softmax_warp_forwardIfffLi10ELb1ELb0EEEvPT0_PKT_iiiPKbib
touch 0 0 0+4/1*w16*w20 0 1
touch 8 0 0+4/1*w16*w20 0 1
kernel 8db94ead0dcfb43d 36 36 0 9 0 _ZN5cudnn19engines_precompiled16nhwcToNchwKernelI6__halfS2_fLb1ELb0EL21cudnnKernelDataType_t0EEEvNS0_18nhwc2nchw_params_tIT1_EEPKT_PT0_
touch 72 0 0+2/1*w16*w0 0 1
touch 80 0 0+2/1*w16*w0 0 1
kernel 8fa85dd98c119a9e 128 38 0 73 0 sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 0+4/1*w156*w164*w616 0 1
touch 8 0 0+4/1*w160*w164*w616 0 1
touch 16 0 0+4/1*w156*w160*w616 0 1
touch 48 0 0+4/1*w156*w160*w616 0 1
touch 376 0 0+1/1*w356*w368 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
kernel 900b32100ef92fdb 96 2 0 0 0 _Z16gemmSN_TN_kernelIfLi128ELi16ELi2ELi4ELi14ELi15ELb0E30cublasGemvTensorStridedBatchedIKfES2_S0_IfEEv22cublasGemmSmallNParamsIT7_T8_T9_T_E
touch 16 0 0+2/1*w4*gx 0 1
touch 32 0 106496 0 1
touch 48 0 53248 0 1
touch 64 0 53248 0 1
touch 136 0 4096 0 1
kernel 90a273ad4691c20d 254 4 0 0 0 sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize4x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 0+2/1*w688*bx 0 1
touch 8 0 0+2/1*w688*bx 0 1
touch 16 0 0+2/1*w688*bx 0 1
touch 48 0 0+2/1*w688*bx 0 1
kernel 92cc15e61d4b1d4e 226 4 0 0 0 _ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align1EEvNT_6ParamsE
touch 280 0 20480 0 1
touch 288 0 0+1/1*w20*w160 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel 9324d4b017fdcb45 95 2 0 0 0 _Z16gemmSN_TN_kernelIfLi128ELi16ELi2ELi4ELi6ELi7ELb0E30cublasGemvTensorStridedBatchedIKfES2_S0_IfEEv22cublasGemmSmallNParamsIT7_T8_T9_T_E
touch 16 0 0+2/1*w4*gx 0 1
touch 32 0 98304 0 1
touch 48 0 49152 0 1
touch 64 0 49152 0 1
touch 136 0 4096 0 1
kernel 93b086462942e8bb 220 70 0 0 0 _ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x256_16x3_tn_align4EEvNT_6ParamsE
touch 280 0 0+1/1*w4*w64 0 1
touch 288 0 0+1/1*w8*w176 0 1
touch 296 0 0+1/1*w0*w176 0 1
touch 304 0 0+1/1*w0*w176 0 1
kernel 95b17a4239b2a703 168 94 0 0 0 sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
none 280
none 288
none 712
none 736
touch 1032 0 0 0 1
touch 1048 0 0 0 1
touch 1056 0 0 0 1
touch 1080 0 0+1/1*w56 0 1
none 1264
none 1328
none 1392
none 1456
none 1840
none 1904
kernel 95c93a93b0a4e4a2 232 16 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_64x128_32x4_nt_align4EEvNT_6ParamsE
touch 280 0 262144 0 1
touch 288 0 0+4/1*w20*w168 0 1
touch 296 0 0+1/1*w20*w168 0 1
touch 304 0 0+1/1*w20*w168 0 1
kernel 963ed42883a40241 128 16 0 0 0 sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x32_warpgroupsize1x1x1_g1_execute_split_k_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 2064384 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1136
none 1200
none 1264
none 1328
kernel 9724d0ec2fe6022e 136 90 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_128x64_16x6_nn_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel 982affb75becf9d1 32 48 0 0 0 _ZN2at6native49_GLOBAL__N__834c9086_16_AveragePool2d_cu_fb80407625avg_pool2d_out_cuda_frameIffEEviPKT_lllliiiiiiiPS3_ibb
touch 8 0 0+4/1*w0*w60*w60 0 1
touch 80 0 0+4/1*w0 0 1
kernel 983f0d24b91af173 168 12 0 0 0 sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize256x64x32_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1584
none 1648
none 1712
none 1776
touch 2864 0 0+1/1*w112 0 1
kernel 98457fd31c6a0277 0 32 0 0 0 nvjet_sm90_hsh_256x8_64x6_4x1_v_bz_TNT
none 176
none 240
none 328
none 432
none 496
none 560
none 624
none 816
none 880
none 944
none 1008
none 1072
none 1136
none 1200
none 1264
none 1704
none 1712
kernel 9932b3140af0d475 126 2 0 0 0 sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 200704 0 1
touch 8 0 1658880 0 1
touch 16 0 0+1/1*w160*w656 0 1
touch 48 0 0+1/1*w160*w656 0 1
kernel 99e89fafc91f73f8 163 88 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_128x64_32x6_nn_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel 99feafb5cd198d45 168 30 0 0 0 sm90_xmma_dgrad_implicit_gemm_indexed_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32_warpgroupsize1x1x1_g1_strided_execute_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
touch 1248 0 0+1/1*w104 0 1
none 1264
none 1328
none 1392
none 1456
none 1520
none 1584
none 1648
none 1712
none 1776
none 1840
none 1904
none 1968
none 2032
none 2096
none 2160
none 2224
none 2288
none 2352
none 2416
none 2480
none 2544
none 2608
none 2672
none 2736
none 2800
none 2864
none 2928
none 2992
none 3056
none 3120
none 3184
kernel 9a12bdd70e478b93 214 2 0 0 0 _ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x256_16x3_nt_align4EEvNT_6ParamsE
touch 280 0 2097152 0 1
touch 288 0 0+2/1*w20*w40 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel 9a84419af0ca5988 230 4 0 1 0 _ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align1EEvNT_6ParamsE
touch 280 0 1925120 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+1/1*w20*w168 0 1
touch 304 0 0+1/1*w20*w168 0 1
kernel 9af6240de10325a5 226 2 0 0 0 _ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x256_32x3_tn_align4EEvNT_6ParamsE
touch 280 0 0+1/1*w64*w120 0 1
touch 288 0 0+1/1*w0*w312 0 1
touch 296 0 0+1/1*w0*w176 0 1
touch 304 0 0+1/1*w0*w176 0 1
kernel 9bce8f5ca161d1a8 168 18 0 0 0 sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
none 280
none 288
none 712
none 736
none 1264
none 1328
none 1392
none 1456
none 1840
none 1904
kernel a1b0007ece674058 0 12 0 0 0 nvjet_sm90_hsh_64x16_64x16_4x1_v_bz_TNT
none 176
none 240
none 328
none 432
none 496
none 560
none 624
none 816
none 880
none 944
none 1008
none 1072
none 1136
none 1200
none 1264
none 1704
none 1712
kernel a1e9f7c7511aaddf 32 2 0 0 0 _Z18sgemm_largek_lds64ILb0ELb0ELi6ELi3ELi4ELi5ELi2ELi64EEvPfPKfS2_iiiiiiS2_S2_ffiiPiS3_
touch 0 0 32768 0 1
touch 8 0 0+4/1*w24*w24 0 1
touch 16 0 32768 0 1
touch 80 0 4096 0 1
touch 88 0 0 0 1
kernel a27ee0fba35a153a 119 348 0 11 0 sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize64x32x64_stage5_warpsize2x2x1_g1_tensor16x8x8_alignc4_execute_kernel__5x_cudnn
touch 0 0 0+4/1*w56*w208 0 1
other 8
touch 16 0 0+4/1*w56*w228 0 1
touch 24 0 0+4/1*w56*w228 0 1
touch 328 0 0+1/1*w320 0 1
touch 344 0 0 0 1
touch 352 0 0 0 1
kernel a3101be95bbb705b 32 1982 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13BinaryFunctorIfffZNS0_67_GLOBAL__N__06c19b41_28_ActivationThresholdKernel_cu_751192d7_1581121threshold_kernel_implIfEEvRNS_18TensorIteratorBaseET_S7_EUlffE_EESt5arrayIPcLm3EEEEviT0_T1_
touch 24 0 0+4/1*w0 0 1
touch 32 0 0+4/1*w0 0 1
touch 40 0 0+4/1*w0 0 1
kernel a426ecfb09ab0211 32 2 0 0 0 _Z18sgemm_largek_lds64ILb1ELb0ELi5ELi5ELi4ELi4ELi4ELi34EEvPfPKfS2_iiiiiiS2_S2_ffiiPiS3_
touch 0 0 311296 0 1
touch 8 0 0+4/1*w24*w24 0 1
touch 16 0 311296 0 1
touch 80 0 4096 0 1
touch 88 0 0 0 1
kernel a4b434bbdc2b20a1 220 34 2 0 0 sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32_warpgroupsize1x1x1_g1_execute_split_k_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0+65536/1*w356 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1136
none 1200
none 1264
none 1328
kernel a4cd274b82beb9e4 50 3 0 0 0 _ZN2at6native60_GLOBAL__N__2b2da9da_27_DistributionRandomKernel_cu_f88cee4443distribution_elementwise_grid_stride_kernelImLi2EZZZNS0_9templates4cuda13random_kernelIPNS_17CUDAGeneratorImplEEEvRNS_18TensorIteratorBaseET_ENKUlvE_clEvENKUlvE2_clEvEUlP24curandStatePhilox4_32_10E_ZNS1_27distribution_nullary_kernelIlm10ulonglong2S7_SF_ZZZS5_IS7_EvS9_SA_ENKSB_clEvENKSC_clEvEUlmE_EEvS9_T2_RKT3_T4_EUlimE_EEvlNS_15PhiloxCudaStateET1_SJ_
touch 48 0 0+8/1*w0 0 1
kernel aa28ea1cd8bc0cd5 18 6 0 0 0 _Z11scal_kernelIffLi1ELb1ELi6ELi5ELi5ELi3EEv21cublasTransposeParamsIT0_EPKT_PS3_PKS1_
touch 48 0 0+4/1*w12*w8 0 1
touch 56 0 0+4/1*w12*w8 0 1
kernel aab755c015130e1c 230 4 0 0 0 _ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_256x128_32x3_tn_align1EEvNT_6ParamsE
touch 280 0 0+4/1*w20*w312 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+1/1*w20*w168 0 1
touch 304 0 0+1/1*w20*w168 0 1
kernel ab19825fce7c605a 90 376 0 53 0 sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
other 0
touch 8 0 0+4/1*w248*w616 0 1
touch 16 0 0+4/1*w272*w616 0 1
touch 48 0 0+4/1*w272*w616 0 1
kernel ac7afbbc9d27d7e1 136 76 0 409 0 _ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock22ImplicitGemmMultistageINS_4gemm9GemmShapeILi64ELi64ELi32EEENS4_52Conv2dWgradOutputGradientTileAccessIteratorOptimizedINS_11MatrixShapeILi64ELi32EEENS_10tfloat32_tENS_9transform29PitchLinearWarpRakedThreadMapINS_16PitchLinearShapeILi64ELi32EEELi128ENSF_ILi8ELi4EEELi4EEENS_12AlignedArrayISC_Li4ELi16EEEEENSD_11threadblock25RegularTileAccessIteratorISB_SC_NS_6layout40ColumnMajorTensorOpMultiplicandCongruousILi32ELi32EEELi1ESI_Li16EEELNS_4arch14CacheOperation4KindE0ENS4_48Conv2dWgradActivationTileAccessIteratorOptimizedINSA_ILi32ELi64EEESC_SI_SK_EENSN_ISW_SC_NSO_37RowMajorTensorOpMultiplicandCongruousILi32ELi32EEELi0ESI_Li16EEELSU_0ENS6_11threadblock9MmaPolicyINS6_4warp11MmaTensorOpINS7_ILi32ELi32ELi32EEESC_SQ_SC_SZ_fNSO_8RowMajorENS13_17MmaTensorOpPolicyINSS_3MmaINS7_ILi16ELi8ELi8EEELi32ESC_S16_SC_NSO_11ColumnMajorEfS16_NSS_13OpMultiplyAddEEENSA_ILi1ELi1EEEEELi1ELb0EbEENSA_ILi0ELi0EEES1G_Li1EEELi5EbEENS_8epilogue11threadblock8EpilogueIS8_S1F_Li1ENS1K_22PredicatedTileIteratorINS1K_26OutputTileOptimalThreadMapINS1K_15OutputTileShapeILi64ELi8ELi2ELi1ELi1EEENS1O_ILi1ELi4ELi1ELi1ELi4EEELi128ELi4ELi32EEEfLb0ENSO_9NoPermuteELb0EEENS1J_4warp24FragmentIteratorTensorOpIS15_S19_fNS_5ArrayIfLi4ELb1EEES16_EENS1U_20TileIteratorTensorOpIS15_S19_fS16_EENS1K_18SharedLoadIteratorINS1R_18CompactedThreadMapEfLi16EEENS1J_6thread17LinearCombinationIfLi4EffLNS24_9ScaleType4KindE0ELNS_15FloatRoundStyleE2EEENSA_ILi0ELi8EEELi2ELi1EEENS11_30GemmIdentityThreadblockSwizzleILi4EEELNS1_8OperatorE2ENS1_17Conv2dProblemSizeELNS1_9GroupModeE0EEEEEvNT_6ParamsE
touch 176 0 0+4/1*w0*w120 0 1
other 264
touch 336 0 0 0 1
touch 408 0 0+4/1*w24*w64*w88 0 1
touch 472 0 0+4/1*w24*w64*w88 0 1
kernel ad3d68dda6964d18 32 10 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi8ENS0_13AUnaryFunctorIN3c104HalfES4_S4_NS0_15binary_internal10MulFunctorIfEEEESt5arrayIPcLm2EEEEviT0_T1_
touch 16 0 0+2/1*w0 0 1
touch 24 0 0+2/1*w0 0 1
kernel b0409b353e8e1c11 64 6 0 0 0 sm80_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize32x32x64_stage3_warpsize2x2x1_tensor16x8x8_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 4194304 0 1
touch 8 0 0+16/1*w248 0 1
touch 16 0 0+4/1*w248 0 1
touch 48 0 0+4/1*w248 0 1
kernel b04ec5bcaf3d0e29 216 44 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_64x256_16x4_nt_align1EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel b19b829886e4b63f 32 4 0 0 0 _ZN8cublasLt19splitKreduce_kernelILi32ELi16Eif13__nv_bfloat16fS1_Lb0EfS1_S1_Lb1ELb0ELb0ELb0EEEvNS_18cublasSplitKParamsIT4_EEPKT2_PKT8_PT7_PT3_PKS3_SG_PKT9_S7_PSH_PvlPS3_PiSM_SM_SG_SG_SG_SG_SG_
touch 64 0 32768 0 1
touch 72 0 8192 0 1
touch 80 0 32768 0 1
touch 88 0 8192 0 1
kernel b2bfa346141ffafd 75 6 0 0 0 _Z16gemmSN_TN_kernelIfLi128ELi16ELi2ELi4ELi2ELi2ELb1E30cublasGemvTensorStridedBatchedIKfES2_S0_IfEEv22cublasGemmSmallNParamsIT7_T8_T9_T_E
touch 16 0 0+4/1*w92*w100 0 1
touch 32 0 0+8/1*w100 0 1
touch 48 0 0+8/1*w92 0 1
touch 64 0 0+8/1*w92 0 1
touch 136 0 0+4/1*w92 0 1
kernel b569c79a47652a3f 242 26 0 0 0 _ZN17cutlass__5x_cudnn6KernelI80cutlass_tensorop_s1688dgrad_optimized_tf32_128x128_16x5_nhwc_unity_stride_align4EEvNT_6ParamsE
touch 184 0 0+4/1*w120*w0 0 1
touch 240 0 0+1/1*w92*w224 0 1
touch 312 0 0+1047/1*w280 0 1
touch 384 0 0+1047/1*w280 0 1
touch 448 0 0 0 1
kernel b6ac3d4281e018fd 32 188 0 0 0 _ZN5cudnn21bn_bw_1C11_kernel_newIff6float2Li128ELb1ELi1EEEvT0_S2_S2_S2_17cudnnTensorStructPKT_S3_S6_S3_PS4_PKS2_PS2_SA_S9_S9_S2_
touch 120 0 0+4/1*w32 0 1
touch 232 0 0+4/1*w32 0 1
touch 344 0 0+4/1*w32 0 1
touch 352 0 0+1/1*w48 0 1
touch 360 0 0+1/1*w48 0 1
touch 368 0 0+4/1*w52 0 1
touch 376 0 0+1/1*w48 0 1
touch 384 0 0+1/1*w48 0 1
kernel b7087f38da26ae24 224 4 0 0 0 sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 4194304 0 1
touch 8 0 4194304 0 1
touch 16 0 4194304 0 1
touch 48 0 4194304 0 1
kernel b82e41bdb595b26d 168 46 0 0 0 sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn
none 48
none 56
none 64
none 72
none 376
none 392
none 400
none 1136
none 1200
none 1264
none 1328
kernel b8371652dda16043 23 46 0 792 0 _ZN2at6native52_GLOBAL__N__e57809e0_19_DilatedMaxPool2d_cu_6258b57421max_pool_forward_nchwIfiEEvT0_PKT_llliiiiiiiiiiPS4_Pl
other 8
touch 80 0 0+4/1*w0 0 1
touch 88 0 0+8/1*w0 0 1
kernel ba560b54fb1f3a9c 254 4 0 0 0 sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x128x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 262144 0 1
touch 8 0 0+2/1*w368*bx 0 1
touch 16 0 704512 0 1
touch 48 0 704512 0 1
touch 376 0 0+1/1*w368 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
kernel bd0be73f7a4f90a6 168 180 0 0 0 sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x192x32_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn
none 48
none 56
none 64
none 72
none 376
none 392
none 400
none 1584
none 1648
none 1712
none 1776
kernel beb3cf36332ec23c 134 110 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_128x64_16x6_nt_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel bf05223ca4df3ba4 168 28 0 0 0 sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x32_warpgroupsize1x1x1_g1_execute_segment_k_on_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 2064384 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1136
none 1200
none 1264
none 1328
kernel bf80ad96a3a03ee0 168 192 0 0 0 sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x32_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1584
none 1648
none 1712
none 1776
touch 2864 0 0+1/1*w104 0 1
kernel c05fac3b197d519d 44 261 0 0 0 _ZN2at6native54_GLOBAL__N__d8ceb000_21_DistributionNormal_cu_0c5b6e8543distribution_elementwise_grid_stride_kernelIfLi4EZNS0_9templates4cuda20normal_and_transformIffPNS_17CUDAGeneratorImplEZZZNS4_13normal_kernelIS7_EEvRKNS_10TensorBaseEddT_ENKUlvE_clEvENKUlvE0_clEvEUlfE_EEvRNS_18TensorIteratorBaseET1_T2_EUlP24curandStatePhilox4_32_10E0_ZNS1_27distribution_nullary_kernelIff6float4S7_SM_SF_EEvSH_SJ_RKT3_T4_EUlifE_EEvlNS_15PhiloxCudaStateESI_SJ_
touch 48 0 0+4/1*w0 0 1
kernel c0b891c2ee69e8dd 168 132 0 0 0 sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1584
none 1648
none 1712
none 1776
touch 2864 0 4096 0 1
kernel c0d0e56fcb58ffd5 0 12 0 0 0 nvjet_sm90_hsh_192x16_64x8_4x1_v_bz_TNT
none 176
none 240
none 328
none 432
none 496
none 560
none 624
none 816
none 880
none 944
none 1008
none 1072
none 1136
none 1200
none 1264
none 1704
none 1712
kernel c123ab32435690a5 102 2 0 293 0 sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x64x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 311296 0 1
touch 8 0 0+1/1*w636*w688 0 1
touch 376 0 0+4/1*w688 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
kernel c36fe7d022832a49 32 4 0 0 0 _ZN2at6native58_GLOBAL__N__1076efdf_25_AdaptiveAveragePooling_cu_ef17039c21adaptive_average_poolIfEEvPKT_PS3_iiiilll
touch 0 0 0+4/1*gx*w32 0 1
touch 8 0 0+4/1*gx*w32 0 1
kernel c71213d99b21ee80 32 4 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13BinaryFunctorIN3c104HalfES4_bNS0_51_GLOBAL__N__28ce311f_18_CompareEQKernel_cu_d8008c9616CompareEqFunctorIS4_EEEESt5arrayIPcLm3EEEEviT0_T1_
touch 8 0 0+1/1*w0 0 1
touch 16 0 0+2/1*w0 0 1
touch 24 0 0+2/1*w0 0 1
kernel c74feeebf7359393 64 436 0 0 0 _ZN5cudnn17winograd_nonfused22winogradWgradOutput4x4IffEEvNS0_25WinogradWgradOutputParamsIT_T0_EE
touch 24 0 0+16/1*w0*w8 0 1
touch 32 0 0+4/1*w0*w8 0 1
kernel cacd140a9668c88d 214 4 0 0 0 _ZN7cutlass7Kernel2I50cutlass_80_tensorop_s1688gemm_64x64_32x4_nt_align1EEvNT_6ParamsE
touch 280 0 0+16/1*w80 0 1
touch 288 0 0+4/1*w40 0 1
touch 296 0 0+16/1*w40 0 1
touch 304 0 0+16/1*w40 0 1
kernel ccdc7d4cade9bc45 51 12 0 0 0 _ZN2at6native43_GLOBAL__N__50f1b6c4_10_Dropout_cu_0e96ed3824fused_dropout_kernel_vecIffjLi1ELi4EbEEvNS_4cuda6detail10TensorInfoIKT_T1_EENS5_IS6_S8_EENS5_IT4_S8_EES8_T0_NS_15PhiloxCudaStateE
touch 0 0 0+4/1*w8 0 1
touch 216 0 0+4/1*w8 0 1
touch 432 0 0+1/1*w8 0 1
kernel cd5fdfc09b04cc02 213 22 0 0 0 _ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x128_16x6_nt_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel ceb811b4fa35602f 48 30 0 0 0 _ZN5cudnn25bn_fw_tr_1C11_kernel_NCHWIffiLi512ELb1ELi1ELb1EEEv17cudnnTensorStructPKT_S1_PS2_PKT0_S8_S6_S6_PS6_S9_S9_S9_S6_S6_
touch 104 0 0+4/1*w16 0 1
touch 216 0 0+4/1*w16 0 1
touch 224 0 0+1/1*w32 0 1
touch 232 0 0+1/1*w32 0 1
touch 248 0 0+1/1*w32 0 1
touch 256 0 0+1/1*w32 0 1
touch 264 0 0+1/1*w32 0 1
touch 272 0 0+1/1*w32 0 1
kernel cf52f8d82a340582 32 4 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13BinaryFunctorIbbbNS0_15binary_internal10MulFunctorIbEEEESt5arrayIPcLm3EEEEviT0_T1_
touch 8 0 0+1/1*w0 0 1
touch 16 0 0+1/1*w0 0 1
touch 24 0 0+1/1*w0 0 1
kernel d0f99484c2ddc973 30 2 0 0 0 _Z22tensorTransformGenericI6__halfS0_fLb1ELb0ELb0EL21cudnnKernelDataType_t0EEv26cudnnTensorTransformStruct21tensorTransformParamsimPKT_PT0_T1_S9_
touch 272 0 20480 0 1
touch 280 0 24576 0 1
kernel d11948bc78b2362b 22 184 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi2ENS0_11FillFunctorIlEESt5arrayIPcLm1EEEEviT0_T1_
touch 16 0 512 0 1
kernel d1d2819b196cad8e 166 20 0 0 0 sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize128x32x8_stage3_warpsize2x2x1_g1_ffma_aligna4_alignc4_execute_kernel__5x_cudnn
touch 0 0 0+4/1*w56*w208 0 1
touch 8 0 0+4/1*w72*w88 0 1
touch 16 0 0+4/1*w56*w228 0 1
touch 24 0 0+4/1*w56*w228 0 1
kernel d3adf1984ca33867 96 18 0 0 0 sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize32x64x64_stage4_warpsize2x2x1_tensor16x8x8_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 0+4/1*w224*w616 0 1
touch 8 0 0+4/1*w248*w616 0 1
touch 16 0 0+4/1*w272*w616 0 1
touch 48 0 0+4/1*w272*w616 0 1
kernel d52d04cd52e4ba23 168 208 0 0 0 sm90_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1520
none 1584
none 1648
none 1712
touch 2784 0 0+1/1*w104 0 1
kernel d545f8e1e4377210 32 79 0 0 0 _ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIlNS0_14func_wrapper_tIlZNS0_11sum_functorIlllEclERNS_14TensorIteratorEEUlllE_EEjlLi4ELi4EEEEEvT1_
touch 992 0 0+8/1*w20*w24 0 1
touch 1000 0 0+1/1*w24 0 1
touch 1024 0 0+8/1*w24 0 1
touch 1032 0 0 0 1
kernel d6856c72814e01c6 32 92 0 0 0 _ZN8cublasLt19splitKreduce_kernelILi32ELi16Eif6__halffS1_Lb0EfS1_S1_Lb1ELb0ELb0ELb0EEEvNS_18cublasSplitKParamsIT4_EEPKT2_PKT8_PT7_PT3_PKS3_SG_PKT9_S7_PSH_PvlPS3_PiSM_SM_SG_SG_SG_SG_SG_
touch 64 0 0+8/1*w36 0 1
touch 72 0 0+2/1*w36 0 1
touch 80 0 0+8/1*w36 0 1
touch 88 0 0+2/1*w36 0 1
kernel d6884d5aa0dd3c91 159 20 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_64x128_32x3_nt_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel d70768021c89f19d 0 68 0 0 0 nvjet_sm90_hsh_64x8_64x16_2x1_v_bz_splitK_TNT
none 176
none 240
none 328
none 432
none 496
none 560
none 624
none 688
none 752
none 816
none 880
none 944
none 1008
none 1072
none 1136
none 1200
none 1264
none 1608
none 1704
none 1712
kernel d7d38ab2d1e5dcb1 64 48 0 3 0 _Z15fft2d_c2r_32x32IfLb0ELb0ELj0ELb0ELb0EEvPT_PK6float2iiiiiiiiiffN5cudnn15reduced_divisorEbS1_S1_4int221cudnnActivationStructii
touch 0 0 0+4/1*w36*w44 0 1
touch 8 0 0+1/20561*d32 0 1
kernel d7f42b95106dd3e4 213 38 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_64x256_16x4_nt_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel d9aed9c703448b25 56 9 0 0 0 _ZN2at6native60_GLOBAL__N__2b2da9da_27_DistributionRandomKernel_cu_f88cee4443distribution_elementwise_grid_stride_kernelIjLi4EZZZNS0_9templates4cuda21random_from_to_kernelIPNS_17CUDAGeneratorImplEEEvRNS_18TensorIteratorBaseEmlT_ENKUlvE_clEvENKUlvE2_clEvEUlP24curandStatePhilox4_32_10E0_ZNS1_27distribution_nullary_kernelIlj5uint4S7_SF_ZZZS5_IS7_EvS9_mlSA_ENKSB_clEvENKSC_clEvEUljE_EEvS9_T2_RKT3_T4_EUlijE_EEvlNS_15PhiloxCudaStateET1_SJ_
touch 48 0 0+1/1*w0 0 1
kernel d9ea2476c6d30524 84 50 0 0 0 _ZN7cutlass7Kernel2I50cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel daa6f9cf1d6a4746 88 22 0 34 0 _ZN7cutlass7Kernel2I50cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+1/1*w20*w36*w120 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel db2ca86ce3eadb75 168 42 0 0 0 sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
none 280
none 288
none 712
none 736
none 1032
none 1048
none 1056
none 1264
none 1328
none 1392
none 1456
none 1840
none 1904
kernel dc20653f48fb1567 22 32 50 0 0 _ZN2at6native59_GLOBAL__N__133be68c_20_group_norm_kernel_cu_751192d7_2652328ComputeFusedParamsCUDAKernelIN3c104HalfEEEvlllPKT_S7_S7_S7_PNS_14AccumulateTypeIS5_Lb1EE4typeESB_
touch 24 0 0+1/1*w8 0 1
touch 32 0 0 0 1
touch 40 0 0 0 1
touch 48 0 0+2/1*w8 0 1
touch 56 0 0+4/1*w8*w0 0 1
touch 64 0 0+4/1*w8*w0 0 1
kernel de34c1008343fc6c 128 320 0 0 0 sm80_xmma_dgrad_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize32x32x8_stage3_warpsize1x2x1_g1_ffma_aligna4_alignc4_execute_kernel__5x_cudnn
touch 0 0 0+1/1*w56*w208 0 1
touch 8 0 147456 0 1
touch 16 0 0+4/1*w56*w208 0 1
touch 24 0 0+4/1*w56*w208 0 1
kernel dedd03cc7a9794cf 12 74 0 0 0 _ZN50_GLOBAL__N__fa15d16e_17_RangeFactories_cu_38772b0829elementwise_kernel_with_indexIiZZZN2at6native15arange_cuda_outERKN3c106ScalarES6_S6_RNS1_6TensorEENKUlvE_clEvENKUlvE2_clEvEUllE_EEvT_T0_PN15function_traitsISD_E11result_typeE
touch 32 0 0+8/1*w0 0 1
kernel dfcd19c545e8bbcb 14 3937 0 0 0 _ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_
touch 8 0 0+4/1*w0 0 1
kernel e1a91abaef54780b 18 14 0 0 0 _ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastINS0_13BUnaryFunctorIfffNS0_15binary_internal10MulFunctorIfEEEEEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_
touch 512 0 0+4/1*w0 0 1
touch 520 0 0+4/1*w24 0 1
kernel e2e93b7177a14ec2 64 48 0 2 0 _Z15fft2d_r2c_32x32IfLb0ELj0ELb0EEvP6float2PKT_iiiiiiiiiN5cudnn15reduced_divisorEb4int2ii
touch 0 0 0+1/15421*d56 0 1
touch 8 0 0+1/1*gx*w24 0 1
kernel e3b6e4a77e9878a7 124 108 0 0 0 sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x64_stage4_warpsize2x2x1_g1_tensor16x8x8_t1r1s1_execute_kernel__5x_cudnn
touch 0 0 0+4/1*w56*w208 0 1
touch 8 0 0+4/1*w56*w228 0 1
touch 16 0 0+4/1*w72*w88 0 1
touch 24 0 0+4/1*w72*w88 0 1
touch 328 0 0+1/1*w308*w320 0 1
touch 344 0 0 0 1
touch 352 0 0+1/1*w340 0 1
kernel e3dc445be00ca007 72 64 0 0 0 sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize32x32x64_stage3_warpsize2x2x1_tensor16x8x8_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 0+2/1*w688 0 1
touch 8 0 0+1/1*w248*w664 0 1
touch 16 0 200704 0 1
touch 48 0 200704 0 1
kernel e556125e354023d0 80 14 0 237 0 sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 0+4/1*w156*w164 0 1
touch 8 0 0+4/1*w160*w164*w616 0 1
touch 16 0 0+4/1*w156*w160*w616 0 1
touch 48 0 0+4/1*w156*w160*w616 0 1
touch 376 0 0+4/1*w368 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
kernel e5da8bc89a6e8cee 18 188 0 0 0 _ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastINS0_13BinaryFunctorIN3c104HalfES5_S5_NS0_15binary_internal10MulFunctorIfEEEEEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_
touch 616 0 0+2/1*w0 0 1
touch 624 0 0+2/1*w12*w24 0+2/1*w8*w12*w24 1+1/134017025*w0*w100
touch 632 0 0+1/112*w0*w20 0+4/1*w12 1+1/22510673*w12*w68
kernel e67453b42f36ef82 168 76 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_64x128_32x6_nn_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel e675c5b2b2b1ff8b 224 8 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1EEvNT_6ParamsE
touch 280 0 0+4/1*w20*w312 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel e6ea29175fe7cb42 96 88 0 0 0 _ZN7cutlass7Kernel2I50cutlass_80_tensorop_s1688gemm_64x64_32x6_nt_align4EEvNT_6ParamsE
touch 280 0 0+1/1*w0*w64 0 1
touch 288 0 0+16/1*w320 0 1
touch 296 0 0+4/1*w320 0 1
touch 304 0 0+4/1*w320 0 1
kernel e891c9f11ddfd6c8 140 14 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_128x64_16x6_tn_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w20*w312 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel e8bd63427288830c 95 18 0 0 0 _ZN43_GLOBAL__N__b6de9c8c_10_SoftMax_cu_9f978f6321softmax_warp_backwardIfffLi10ELb1ELb0EEEvPT0_PKT_S5_iiiPKb
touch 0 0 0+4096/1*w24 0 1
touch 8 0 0+4/1*w24*w28 0 1
touch 16 0 0+4/1*w24*w28 0 1
kernel e8d6f6bfe2098553 32 6 0 0 0 _Z11flip_filterIffEvPT0_PKT_iiii
touch 0 0 0+4/1*w24*gx 0 1
touch 8 0 0+4/1*w24*gx 0 1
kernel e8e1645dce030a6c 168 6 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_64x128_32x3_nt_align1EEvNT_6ParamsE
touch 280 0 0+4/1*w80 0 1
touch 288 0 430080 0 1
touch 296 0 0+4/1*w40*w20 0 1
touch 304 0 0+4/1*w40*w20 0 1
kernel e9ef639adaa301ee 202 2 0 0 0 _ZN7cutlass7Kernel2I43cutlass_80_simt_sgemm_256x128_8x4_nt_align1EEvNT_6ParamsE
touch 280 0 32768 0 1
touch 288 0 32768 0 1
touch 296 0 0+1/1*w0*w96 0 1
touch 304 0 0+1/1*w0*w96 0 1
kernel eb2a1a11b6797809 168 50 0 0 0 sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32_warpgroupsize1x1x1_g1_execute_segment_k_on_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0+32768/1*w356 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1136
none 1200
none 1264
none 1328
kernel ebb1ffe601a366e5 96 2 0 0 0 _Z16gemmSN_TN_kernelIfLi128ELi16ELi2ELi4ELi4ELi4ELb1E30cublasGemvTensorStridedBatchedIKfES2_S0_IfEEv22cublasGemmSmallNParamsIT7_T8_T9_T_E
touch 16 0 0+2/1*w4*gx 0 1
touch 32 0 32768 0 1
touch 48 0 16384 0 1
touch 64 0 16384 0 1
touch 136 0 4096 0 1
kernel ec627d4121b5aac9 48 1842 0 0 0 _ZN5cudnn21bn_bw_1C11_singlereadIfLi512ELb1ELi1ELi2ELi0EEEvNS_15bn_bw_1C11_argsIT_EE
touch 120 0 0+4/1*w32 0 1
touch 232 0 0+4/1*w32 0 1
touch 344 0 0+4/1*w32 0 1
touch 352 0 0+4/1*w52 0 1
touch 360 0 0+4/1*w52 0 1
touch 368 0 0+4/1*w52 0 1
touch 376 0 0+4/1*w52 0 1
touch 384 0 0+4/1*w52 0 1
none 424
kernel ed0d57dd121f3d5a 255 12 0 0 0 _ZN13pytorch_flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi128ELi128ELi64ELi4ELb0ELb0EN7cutlass6half_tE19Flash_kernel_traitsILi128ELi128ELi64ELi4ES3_EELb0ELb1ELb0ELb0ELb0ELb1ELb0ELb0EEEvNS_16Flash_fwd_paramsE
touch 0 0 131072 0 1
touch 8 0 163840 0 1
touch 16 0 163840 0 1
touch 112 0 131072 0 1
touch 160 0 4096 0 1
kernel f1ab75dfdc3363ff 198 10 0 0 0 _ZN17cutlass__5x_cudnn6KernelI66cutlass_tensorop_s1688dgrad_optimized_tf32_64x128_32x3_nhwc_align4EEvNT_6ParamsE
touch 168 0 0+4/1*w0*w120 0 1
touch 240 0 0+1/1*w108*w288 0 1
other 392
other 544
touch 608 0 0 0 1
kernel f1e31efaf0b5a146 90 12 0 0 0 _ZN7cutlass7Kernel2I50cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w8*w20*w0 0 1
touch 288 0 0+1/1*w8*w20*w120 0 1
touch 296 0 0+4/1*w20*w168 0 1
touch 304 0 0+4/1*w20*w168 0 1
kernel f45ae326795cb7b7 124 2 0 0 0 sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize128x32x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
touch 0 0 32768 0 1
touch 8 0 200704 0 1
touch 16 0 0+4/1*w156*w160 0 1
touch 48 0 0+4/1*w156*w160 0 1
kernel f5cb5ccf2ac83267 168 72 0 0 0 _ZN7cutlass7Kernel2I51cutlass_80_tensorop_s1688gemm_64x128_32x3_nn_align4EEvNT_6ParamsE
touch 280 0 0+4/1*w0*w8 0 1
touch 288 0 0+4/1*w20*w320 0 1
touch 296 0 0+4/1*w20*w40 0 1
touch 304 0 0+4/1*w20*w40 0 1
kernel fb16f28a25857ce1 47 1964 0 0 0 _ZN5cudnn24bn_fw_tr_1C11_singlereadIfLi512ELb1ELi1ELi2ELi0EEEvNS_18bn_fw_tr_1C11_argsIT_EE
touch 104 0 0+4/1*w16 0 1
touch 216 0 0+4/1*w16 0 1
touch 224 0 0+4/1*w36 0 1
touch 232 0 0+4/1*w36 0 1
touch 248 0 0+2/1*w36 0 1
touch 256 0 0+4/1*w36 0 1
touch 264 0 0+4/1*w36 0 1
touch 272 0 0+4/1*w36 0 1
none 320
kernel fb496cb30cd07ac3 168 50 0 0 0 sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn
none 48
none 56
none 64
none 72
touch 376 0 0 0 1
touch 392 0 0 0 1
touch 400 0 0 0 1
none 1584
none 1648
none 1712
none 1776
touch 2864 0 4096 0 1
kernel fd4d045a36074f63 25 99 0 0 0 _ZN2at6native53_GLOBAL__N__21739cd4_20_layer_norm_kernel_cu_9c5ada8a28vectorized_layer_norm_kernelIN3c104HalfEfLb1EEEviT0_PKT_S8_S8_PS5_S9_PS6_
touch 8 0 0+8192/1*gx 0 1
touch 40 0 0+1/1*gx 0 1
touch 48 0 0+8192/1*gx 0 1
kernel fea119342a5e2af3 20 12 0 0 0 _ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastIZZZNS0_62_GLOBAL__N__7d4ed096_23_ActivationSiluKernel_cu_751192d7_1559511silu_kernelERNS_18TensorIteratorBaseEENKUlvE_clEvENKUlvE3_clEvEUlN3c104HalfEE_EEvS5_RKT_EUliE_EEviT1_
touch 512 0 0+2/1*w0 0 1
touch 520 0 22016 44032 16
kernel ff9fad913f3a2ab0 213 44 0 0 0 _ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align4EEvNT_6ParamsE
touch 280 0 0+8/1*w72 0 1
touch 288 0 0+1/1*w168*w20 0 1
touch 296 0 0+4/1*w40*w20 0 1
touch 304 0 0+4/1*w40*w20 0 1
kernel ffd9e846d25eb06b 120 14 0 0 0 _ZN7cutlass7Kernel2I50cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align1EEvNT_6ParamsE
touch 280 0 0+4/1*w312*w20 0 1
touch 288 0 0+4/1*w320*w20 0 1
touch 296 0 0+4/1*w40*w20 0 1
touch 304 0 0+4/1*w40*w20 0 1
end 233
