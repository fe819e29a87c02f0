package explore

// surroundingActions are what surrounds the processes of a host.
var surroundingActions = []Action{}
