//! A channel and a control unit that send the information units that the fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::disk_units(program));
