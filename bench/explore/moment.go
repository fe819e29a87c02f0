package explore

// Moment is a point of the protocol at which an action can be placed.
type Moment string

// The moments of a host.
const (
	MomentSent      Moment = "request sent"      // a request has passed, and its answer has not
	MomentAnswered  Moment = "grant not known"   // an answer is under way to the host
	MomentRenewal   Moment = "renewal under way" // a request passes while nobody of the host asks for anything
	MomentRelease   Moment = "release under way" // a request passes after a release was begun
	MomentRestarted Moment = "plugin restarting" // its plugin process has ended
)
