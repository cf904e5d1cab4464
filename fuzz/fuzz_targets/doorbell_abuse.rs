//! Doorbells in the hands of somebody who does what the fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::doorbell_abuse(program));
