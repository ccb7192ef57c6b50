-- KEYS: 1 names, 2 gone, 3 going. ARGV: 1 how many to look at.
tidy(KEYS[1], KEYS[2], KEYS[3], ARGV[1])
return { 'tidied' }
