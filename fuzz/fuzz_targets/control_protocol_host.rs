//! An honest host, and two honest guests of it, facing guests that say what the fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::control_protocol_host(program));
