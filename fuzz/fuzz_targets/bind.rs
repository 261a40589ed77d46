#![no_main]

libfuzzer_sys::fuzz_target!(init: halocline_fuzz::seed("bind"), |bytes: &[u8]| {
    halocline_fuzz::guarded(halocline_fuzz::bind, bytes);
});
