//! An honest host and an honest member of its LAN facing guests that register what the fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::lan_registration(program));
