//! An honest member of a LAN facing another that sends what the fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::lan_peer(program));
