#![no_main]

libfuzzer_sys::fuzz_target!(init: halocline_fuzz::seed("wire"), |bytes: &[u8]| {
    halocline_fuzz::guarded(halocline_fuzz::wire, bytes);
});
