//! An honest side of a path of IUCV facing one that says what the fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::iucv_peer(program));
