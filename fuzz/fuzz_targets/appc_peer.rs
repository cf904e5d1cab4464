//! An honest side of a conversation facing a partner that says what the fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::appc_peer(program));
